from django.contrib import admin
from django.urls import path

from shop import views

urlpatterns = [
    path("", views.index, name="index"),
    path("order", views.order, name="order"),
    path("receipt/<int:pk>", views.receipt, name="receipt"),
    path("report", views.report, name="report"),
    path("admin/", admin.site.urls),
]
