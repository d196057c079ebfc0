"""The only place that imports vLLM: one module a party, and compat for what moved between releases."""
