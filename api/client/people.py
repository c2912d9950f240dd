"""Who may do what, and who did."""

from api.client.resource import Resource


class Tokens(Resource):
    path = "/tokens"


class Audit(Resource):
    path = "/audit"


class Credentials(Resource):
    path = "/credentials"
