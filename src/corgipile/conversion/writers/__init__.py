"""Writers of `convert` for formats other than Arrow, one module each."""
