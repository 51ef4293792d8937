"""Folders of latents as an encoding leaves them, made up: no video, no model."""

import io
import json

FRAMES = (5, 9)


def write_latents(folder, *, segments=2, files=3, each=5):
    """`each` latents a file, files of two buckets in turn; every latent has its number in it."""
    import torch
    from safetensors.torch import save_file

    from trnconv.corpus.latents.encoding import sha256_of

    names, buckets, number = [], dict.fromkeys((f"32x32x{frames}" for frames in FRAMES), 0), 0
    for segment in range(segments):
        rows = []
        for file in range(files):
            frames = FRAMES[file % 2]
            name = f"shards/{segment:06}/{file:08}.safetensors"
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            tensors = {}
            for _ in range(each):
                shape = (2, (frames + 3) // 4, 4, 4)
                latents = {
                    "logvar": torch.full(shape, -float(number)),
                    "mean": torch.full(shape, float(number)),
                }
                key = f"clip{number:03}"
                tensors |= {f"{key}.{part}": value for part, value in latents.items()}
                rows.append(_row(key, name, f"32x32x{frames}", sha256_of(latents)))
                buckets[f"32x32x{frames}"] += 1
                number += 1
            save_file(tensors, str(folder / name))
        names.append(f"manifest/{segment:06}.parquet")
        (folder / "manifest").mkdir(exist_ok=True)
        (folder / names[-1]).write_bytes(_parquet(rows))
    document = {
        "format": 2,
        "segments": names,
        "tensors": ["mean", "logvar"],
        "buckets": buckets,
        "windows": number,
    }
    (folder / "manifest.json").write_text(json.dumps(document))
    return folder


def _row(key, file, bucket, sha256):
    said = {"fps": 16.0, "start_s": 0.0, "caption": None, "metadata": None}
    return {"key": key, "file": file, "bucket": bucket, "sha256": sha256, **said}


def _parquet(rows):
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = io.BytesIO()
    text = [(name, pa.string()) for name in ("key", "file", "bucket", "sha256")]
    numbers = [(name, pa.float64()) for name in ("fps", "start_s")]
    notes = [(name, pa.string()) for name in ("caption", "metadata")]
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(text + numbers + notes)), data)
    return data.getvalue()
