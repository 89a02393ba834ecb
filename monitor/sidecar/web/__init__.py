"""HTTP: metrics, probes, the status page and its API."""
