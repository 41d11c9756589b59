"""pgrouse in a Django project: `INSTALLED_APPS = [..., "pgrouse.contrib.django"]`.

The app brings `manage.py pgrouse`, the schema with `manage.py migrate`, the admin of messages, and a backend for
Django's tasks.
"""
