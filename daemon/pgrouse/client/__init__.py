"""What calls the functions of the queue in the database."""
