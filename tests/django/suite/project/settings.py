"""Settings of the project of these tests. SETTINGS has, as JSON, what a test wants to be another."""

import importlib.util
import json
import os

from psycopg.conninfo import conninfo_to_dict

SECRET_KEY = "of tests"
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "static/"
ROOT_URLCONF = "project.urls"
ALLOWED_HOSTS = ["*"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

_parts = conninfo_to_dict(os.environ["DATABASE_URL"])
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        **{
            name: _parts.get(ours, "")
            for name, ours in {
                "NAME": "dbname",
                "USER": "user",
                "PASSWORD": "password",
                "HOST": "host",
                "PORT": "port",
            }.items()
        },
        "CONN_MAX_AGE": 60,
        # The database of the tests begins as a copy, with the schema: most of what `migrate` does. Tests of `migrate`
        # remove it first.
        "TEST": {"TEMPLATE": _parts["dbname"]},
        "OPTIONS": {},
    }
}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "pgrouse.contrib.django",
    "work",
]
if importlib.util.find_spec("django.tasks") is None:
    INSTALLED_APPS.append("django_tasks")
# Those of Django take a quarter of a second for each password.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
TASKS = {
    "default": {
        "BACKEND": "pgrouse.contrib.django.backend.PgrouseBackend",
        "QUEUES": ["default", "reports"],
        "OPTIONS": {"renamed": {"work.tasks.old_name": "work.tasks.add"}},
    }
}
PGROUSE = {
    "worker": {"poll_interval": "10m", "maintenance_interval": "0.2s", "threads": 4},
    "log": {"format": "json"},
    "topics": {
        "work.tasks.fail_twice": {"max_attempts": 3, "backoff": {"kind": "constant", "base": "10ms"}},
        "work.tasks.child": {"isolation": "process", "concurrency": 1},
        "work.tasks.slow": {"timeout": "0.5s"},
        "plain": {"handler": "work.handlers:plain"},
        "plain.child": {"handler": "work.handlers:plain", "isolation": "process", "concurrency": 1},
    },
}
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
globals().update(json.loads(os.environ.get("SETTINGS", "{}")))
