"""The OpenAPI description: what members mean, which problems an operation answers with, and all of it together."""
