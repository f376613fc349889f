"""A discrete-event model of a cluster: what latency, how many replicas and what cost a load would have.

Stations take service times that were measured on a running service (`calibrate.py`); what was not measured is a
parameter of the deployment (`deployments.toml`) and is printed as such. The same seed gives the same figures.
"""
