"""The rows of the table of changed rules, one module a part of vLLM; `oracle.release_table` puts them together."""
