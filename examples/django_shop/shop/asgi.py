"""The shop under ASGI, with the dashboard of the queue below /queue for the staff of the admin."""

import os

from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
shop = ASGIStaticFilesHandler(get_asgi_application())  # a real site leaves static files to its web server

from pgrouse.contrib.django.dashboard import with_dashboard  # noqa: E402 - needs what get_asgi_application set up

application = with_dashboard(shop, "/queue")
