"""The database engines that run statements."""
