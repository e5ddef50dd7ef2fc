"""Objects in stores and on the web: which bytes are asked for, by how many requests, and what if an answer fails."""
