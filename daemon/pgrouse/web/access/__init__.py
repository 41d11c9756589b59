"""The callers, and what they may see and do: tokens, cookies, hosts, topics, connections with their rights."""
