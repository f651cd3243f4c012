BEGIN TRANSACTION;
CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
INSERT INTO "fact" VALUES('baseline','2026-11-20T00:00:00.000000Z');
INSERT INTO "fact" VALUES('cursor','2026-11-20T00:00:01.000000Z');
INSERT INTO "fact" VALUES('generation','1');
INSERT INTO "fact" VALUES('in_step_at','2026-11-28T08:09:58.960069Z');
INSERT INTO "fact" VALUES('in_step_since','2026-11-28T08:09:58.945527Z');
INSERT INTO "fact" VALUES('incomplete',NULL);
INSERT INTO "fact" VALUES('lists','[["{url}/changelist.xml",null,null,1795132801000000]]');
INSERT INTO "fact" VALUES('looked_at','2026-11-28T08:09:58.960069Z');
INSERT INTO "fact" VALUES('maps','[]');
INSERT INTO "fact" VALUES('running',NULL);
INSERT INTO "fact" VALUES('selection','{"select":[],"exclude":[]}');
INSERT INTO "fact" VALUES('source','{url}/capabilitylist.xml');
CREATE TABLE gone (loc TEXT PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO "gone" VALUES('{url}/%c3%b6.txt',1795132801000000);
CREATE TABLE place (
  key TEXT PRIMARY KEY, is_file INTEGER NOT NULL, path TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "place" VALUES('{host}',0,'{host}');
INSERT INTO "place" VALUES('{host}/a.txt',1,'{host}/a.txt');
INSERT INTO "place" VALUES('{host}/ä.txt',1,'{host}/ä.txt');
INSERT INTO "place" VALUES('{host}/é.txt',1,'{host}/é.txt');
INSERT INTO "place" VALUES('{host}/ü.txt',1,'{host}/ü.txt');
INSERT INTO "place" VALUES('{host}/ü~a5b14bba.txt',1,'{host}/ü~a5b14bba.txt');
CREATE TABLE resource (
  loc TEXT PRIMARY KEY, path TEXT, wanted BLOB, have BLOB, part BLOB,
  generation INTEGER NOT NULL, version INTEGER NOT NULL,
  due REAL, attempts INTEGER NOT NULL DEFAULT 0, problem TEXT
) WITHOUT ROWID;
INSERT INTO "resource" VALUES('{url}/%C3%A4.txt','{host}/ä.txt','{"loc":"{url}/%C3%A4.txt","lastmod":"2026-11-20T00:00:00.000000Z","length":5,"hash":"sha-256:a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e"}','{"lastmod":"2026-11-20T00:00:00.000000Z","length":5,"hash":"sha-256:a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e","etag":"\"a7937b64b8caa58f\"","asked":1795853398}',NULL,1,1,NULL,0,NULL);
INSERT INTO "resource" VALUES('{url}/%C3%BC.txt','{host}/ü.txt','{"loc":"{url}/%C3%BC.txt","lastmod":"2026-11-20T00:00:00.000000Z","length":5,"hash":"sha-256:a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e"}','{"lastmod":"2026-11-20T00:00:00.000000Z","length":5,"hash":"sha-256:a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e","etag":"\"a7937b64b8caa58f\"","asked":1795853398}',NULL,1,1,NULL,0,NULL);
INSERT INTO "resource" VALUES('{url}/%c3%a9.txt','{host}/é.txt','{"loc":"{url}/%c3%a9.txt","lastmod":"2026-11-20T00:00:00.000000Z","length":5,"hash":"sha-256:a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e"}','{"lastmod":"2026-11-20T00:00:00.000000Z","length":5,"hash":"sha-256:a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e","etag":"\"a7937b64b8caa58f\"","asked":1795853398}',NULL,1,1,NULL,0,NULL);
INSERT INTO "resource" VALUES('{url}/%c3%bc.txt','{host}/ü~a5b14bba.txt','{"loc":"{url}/%c3%bc.txt","lastmod":"2026-11-20T00:00:00.000000Z","length":5,"hash":"sha-256:a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e"}','{"lastmod":"2026-11-20T00:00:00.000000Z","length":5,"hash":"sha-256:a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e","etag":"\"a7937b64b8caa58f\"","asked":1795853398}',NULL,1,1,NULL,0,NULL);
INSERT INTO "resource" VALUES('{url}/a.txt','{host}/a.txt','{"loc":"{url}/a.txt","lastmod":"2026-11-20T00:00:00.000000Z","length":5,"hash":"sha-256:a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e"}','{"lastmod":"2026-11-20T00:00:00.000000Z","length":5,"hash":"sha-256:a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e","etag":"\"a7937b64b8caa58f\"","asked":1795853398}',NULL,1,1,NULL,0,NULL);
CREATE INDEX due ON resource (due) WHERE due IS NOT NULL;
COMMIT;
