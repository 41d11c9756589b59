"""`pgrouse top`: the queue, live on a terminal. Imported only by that command."""
