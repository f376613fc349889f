"""The Ray engine. The only package of the service that imports Ray; `docs/ray.md` tells how it runs."""
