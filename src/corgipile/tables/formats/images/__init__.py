"""Folders of images, one folder a class."""
