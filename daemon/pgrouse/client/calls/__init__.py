"""One binding of each SQL function that is granted.

There is a module per folder of `sql/`, with its name, and a function per SQL function, with its arguments.

What a function does, returns and locks, and which errors it raises, is in docs/reference/protocol.md. Here None leaves
an argument to its default. JSON is text, in both directions; a column of jsonb has the ending `_json` in a result. A
duration is a timedelta, a number of seconds, or a text like "1h30m". Of several arrays each has an element per message.
An error of the server is raised as psycopg raises it; `Client` and `AsyncClient` raise it as `RequestRefused` or
`DatabaseUnreachable`.
"""
