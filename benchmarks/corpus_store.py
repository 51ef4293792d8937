"""A stand-in for S3 on loopback, which counts requests, and a job that lies in it almost done."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable
from threading import Thread
from typing import Any

from trnconv.corpus.shards.completion import record_name
from trnconv.corpus.shards.manifest import as_parquet, manifest_name, totals_name, totals_of
from trnconv.corpus.shards.plan import CorpusPlan, read_segment
from trnconv.corpus.shards.records import EncodedWindow, LatentFile, ShardRecord
from trnconv.corpus.shards.shard import Shard
from trnconv.corpus.storage.document import as_document
from trnconv.corpus.storage.store import Folder

BUCKET = "bucket"
_ACCOUNT = "123456789012"  # moto's own
_UNDONE = 100  # shards of the last segment


class StandIn:
    """moto's S3 at 127.0.0.1, in a thread of this process."""

    def __init__(self) -> None:
        import fsspec
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        fsspec.get_filesystem_class("s3").clear_instance_cache()  # one of an earlier server
        self.requests: Counter[str] = Counter()  # by method
        self.url = f"s3://{BUCKET}"
        app = DomainDispatcherApplication(create_backend_app)

        def counted(environ: dict[str, Any], respond: Any) -> Iterable[bytes]:
            self.requests[environ["REQUEST_METHOD"]] += 1
            answer: Iterable[bytes] = app(environ, respond)
            return answer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = make_server("127.0.0.1", 0, counted, threaded=True)
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> StandIn:  # noqa: PYI034 - there is no subclass
        os.environ.update(
            AWS_ACCESS_KEY_ID="none",
            AWS_SECRET_ACCESS_KEY="none",  # noqa: S106 - of a stand-in
            AWS_DEFAULT_REGION="us-east-1",
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{self._server.server_port}",
        )
        self._thread.start()
        self._backend().reset()  # moto's objects outlast a server, in one process
        self._backend().create_bucket(BUCKET, "us-east-1")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()

    def put(self, key: str, data: bytes) -> None:
        """An object, without a request."""
        self._backend().put_object(BUCKET, key, data)

    def _backend(self) -> Any:
        from moto.s3.models import s3_backends

        return s3_backends[_ACCOUNT]["aws"]


def filled(store: StandIn, out: Folder, plan: CorpusPlan) -> None:
    """Put records, files of latents and manifests of all shards but the last hundred."""
    root = out.url.removeprefix(f"{store.url}/")
    for segment in plan.segments:
        shards = read_segment(out, segment)
        last = segment == plan.segments[-1]
        done = shards[:-_UNDONE] if last else shards
        records = [_record(shard) for shard in done]
        for shard, record in zip(done, records, strict=True):
            store.put(f"{root}/{record_name(shard)}", b"{}")
            store.put(f"{root}/{record.files[0].name}", b"x")
        if not last:
            rows = as_parquet(records)
            store.put(f"{root}/{manifest_name(segment.name)}", rows)
            sums = as_document(totals_of(records, rows))
            store.put(f"{root}/{totals_name(segment.name)}", sums)


def _record(shard: Shard) -> ShardRecord:
    file = LatentFile(f"shards/{shard.key}-720x1280x81-0.safetensors", "720x1280x81", 1, "0" * 64)
    windows = (
        EncodedWindow(
            id=clip.id,
            key=clip.id,
            url=clip.url,
            window=0,
            start_s=0.0,
            fps=16.0,
            bucket=file.bucket,
            file=file.name,
            shape=(16, 21, 90, 160),
            sha256="0" * 64,
            source_bytes=1,
            source_sha256="0" * 64,
        )
        for clip in shard.clips
    )
    return ShardRecord(shard.name, "0" * 64, (file,), tuple(windows), ())
