from django.contrib import admin

from shop.models import Order

admin.site.register(Order, list_display=["id", "customer", "cents", "receipt_sent_at"])
