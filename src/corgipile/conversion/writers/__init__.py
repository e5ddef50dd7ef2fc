"""What `convert` writes besides Arrow files, one file a format."""
