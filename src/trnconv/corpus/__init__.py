"""Encode a corpus of videos into latents: resumable, one shard after the other.

`start` lists clips and assigns them to shards; its `CorpusRun` has an engine encode what is not
done. The folder it leaves is described in docs/guides/encode-a-corpus.md; `LatentDataset` reads it.
"""

from trnconv.corpus.buckets import Buckets, Picture, buckets_for
from trnconv.corpus.dataset import LatentDataset
from trnconv.corpus.encoding import EncoderSettings
from trnconv.corpus.engines import Engine
from trnconv.corpus.job import Job, RunTerms
from trnconv.corpus.limits import Limits
from trnconv.corpus.listing import list_clips
from trnconv.corpus.run import CorpusRun, start

__all__ = [
    "Buckets",
    "CorpusRun",
    "EncoderSettings",
    "Engine",
    "Job",
    "LatentDataset",
    "Limits",
    "Picture",
    "RunTerms",
    "buckets_for",
    "list_clips",
    "start",
]
