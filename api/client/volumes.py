"""Data that lies outside and is mounted into runs."""

from api.client.resource import Resource


class Volumes(Resource):
    path = "/volumes"
