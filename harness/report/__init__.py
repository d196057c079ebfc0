"""What people read of a difference: the trace as a table, and the folder with trace.json, report.md and repro.py.

Works without vLLM. Everything comes from the entries that a replay keeps (`Options(keep_entries=True)`).
"""
