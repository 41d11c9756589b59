"""The pages of the dashboard, one router each. `view` says how a page is made."""

from __future__ import annotations

from fastapi import APIRouter

from pgrouse.web.page.view import View
from pgrouse.web.pages import (
    alerts,
    archive,
    audit,
    batches,
    dead,
    doctor,
    login,
    overview,
    reference,
    runbooks,
    schedules,
    tokens,
    workers,
    workflows,
)
from pgrouse.web.pages.messages import bulk_action, message, messages, publish, signal
from pgrouse.web.pages.topics import topic, topics

# Every page is named here: what is not in the list is not served.
ROUTERS: list[APIRouter] = [
    login.router,
    signal.router,
    overview.router,
    topics.router,
    topic.router,
    batches.router,
    workflows.router,
    schedules.router,
    workers.router,
    messages.router,
    bulk_action.router,
    publish.router,
    message.router,
    dead.router,
    alerts.router,
    archive.router,
    doctor.router,
    reference.router,
    runbooks.router,
    audit.router,
    tokens.router,
]

# The pages that are kept up to date while they are open.
VIEWS: dict[str, View] = {
    each.name: each
    for each in [
        overview.VIEW,
        topics.VIEW,
        topic.VIEW,
        batches.VIEW,
        batches.ONE,
        workflows.VIEW,
        workflows.ONE,
        schedules.VIEW,
        schedules.ONE,
        workers.VIEW,
        messages.VIEW,
        message.VIEW,
        dead.VIEW,
        alerts.VIEW,
        archive.VIEW,
        audit.VIEW,
        tokens.VIEW,
    ]
}
