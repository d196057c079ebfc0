"""Campaigns: shards of all levels on many machines, one store of what they find, and the corpus that is kept of it."""
