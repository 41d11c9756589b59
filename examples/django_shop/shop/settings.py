"""Settings of the shop. DATABASE_URL is the address of its database; `manage.py start` finds one."""

import importlib.util
import os
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

BASE_DIR = Path(__file__).parents[1]
SECRET_KEY = "of an example, so anyone may know it"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
USE_TZ = True
STATIC_URL = "static/"
ROOT_URLCONF = "shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

_parts = conninfo_to_dict(os.environ.get("DATABASE_URL", "dbname=shop"))
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _parts.get("dbname", "shop"),
        "USER": _parts.get("user", ""),
        "PASSWORD": _parts.get("password", ""),
        "HOST": _parts.get("host", ""),
        "PORT": _parts.get("port", ""),
        "CONN_MAX_AGE": 60,
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
    "shop",
]
if importlib.util.find_spec("django.tasks") is None:  # before Django 6 tasks are a package
    INSTALLED_APPS.append("django_tasks")

TASKS = {
    "default": {
        "BACKEND": "pgrouse.contrib.django.backend.PgrouseBackend",
        "QUEUES": ["default", "reports"],
    }
}

# The sections of pgrouse.toml. A file overrides these, and the environment overrides both.
PGROUSE = {
    "worker": {"concurrency": 20, "threads": 4},
    "topics": {
        "shop.tasks.send_receipt": {"max_attempts": 3, "backoff": {"kind": "constant", "base": "2s"}},
    },
}

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
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
