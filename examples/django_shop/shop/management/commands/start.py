"""`manage.py start`: starts everything, with a private PostgreSQL unless DATABASE_URL names one."""

import os
import subprocess
import sys

from django.conf import settings
from django.core.management.base import BaseCommand

from pgrouse import devdb


class Command(BaseCommand):
    help = "Start the shop: its database, a worker, and the web server."
    requires_system_checks = []

    def add_arguments(self, parser):
        parser.add_argument("address", nargs="?", default="127.0.0.1:8000")

    def handle(self, *, address, **options):
        server = devdb.find("django-shop", os.environ.get("DATABASE_URL"), database="shop")
        was_started = server.start()
        os.environ["DATABASE_URL"] = server.dsn()
        os.environ |= {"DJANGO_SUPERUSER_USERNAME": "admin", "DJANGO_SUPERUSER_PASSWORD": "admin"}
        try:
            self.call("migrate")
            self.call("createsuperuser", "--noinput", "--email", "admin@example.com", check=False)
            self.serve(address)
        finally:
            if was_started:
                server.stop()

    def serve(self, address):
        worker = subprocess.Popen([sys.executable, sys.argv[0], "pgrouse", "run"])
        host, _, port = address.rpartition(":")
        served = ["uvicorn", "shop.asgi:application", "--app-dir", settings.BASE_DIR, "--host", host, "--port", port]
        site = subprocess.Popen([sys.executable, "-m", *served])
        try:
            site.wait()
        except KeyboardInterrupt:  # the site gets it too
            site.wait()
        finally:
            worker.terminate()
            worker.wait()

    def call(self, *arguments, check=True):
        subprocess.run([sys.executable, sys.argv[0], *arguments], check=check)
