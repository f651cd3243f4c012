# Varnish before a hub: a cache for streams, a proxy for all else. See docs/operations/caches.md.
vcl 4.1;

import std;

backend default {
    .host = "10.0.0.11";
    .port = "8080";
    .first_byte_timeout = 60s;  # longer than RSNOTIFY_LONG_POLL_SECONDS
    .between_bytes_timeout = 60s;
}

sub vcl_recv {
    if (req.http.Upgrade ~ "(?i)websocket") {
        return (pipe);
    }
    if (req.url !~ "^/streams/" || req.method != "GET"
        || req.http.Authorization || req.http.Cookie || req.url ~ "[?&](access_token=|live=sse)"
        || req.url ~ "[?&]offset=now") {
        return (pass);  # it carries a token, has no end, or is of this moment
    }
    # One question, one key: `:` and `%3A` are the same, `/` and `%2F` in what a filter asks for,
    # whatever order the parameters come in.
    if (req.url ~ "\?") {
        set req.url = regsuball(req.url, "/(?=[^?]*$)|%2f", "%2F");
    }
    set req.url = std.querysort(regsuball(req.url, ":|%3a", "%3A"));
    return (hash);
}

sub vcl_pipe {
    set bereq.http.Upgrade = req.http.Upgrade;
    set bereq.http.Connection = req.http.Connection;
}

sub vcl_backend_response {
    set beresp.grace = 0s;  # what the hub says is what holds: nothing is given a moment longer
}
