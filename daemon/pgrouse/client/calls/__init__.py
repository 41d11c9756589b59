"""One binding of each SQL function that is granted: a module per folder of `sql/`, a function per SQL function, with its arguments."""
