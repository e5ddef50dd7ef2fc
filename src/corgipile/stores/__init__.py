"""Access to objects in stores and on the web: request planning, retries and a local cache."""
