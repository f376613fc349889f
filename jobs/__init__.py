"""Long-running work beside the service: batch and maintenance jobs. May import Ray and `serve_app`."""
