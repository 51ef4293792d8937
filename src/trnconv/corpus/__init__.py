"""Encode a corpus of videos into latents: resumable, one shard after the other.

`start` lists clips and assigns them to shards; its `CorpusRun` has an engine encode what is not
done. The folder it leaves is described in docs/guides/encode-a-corpus.md; `LatentDataset` reads it.
"""

from trnconv.corpus.dataset import LatentDataset
from trnconv.corpus.engines import Engine
from trnconv.corpus.jobs.job import Job, RunTerms
from trnconv.corpus.latents.encoding import EncoderSettings
from trnconv.corpus.run import CorpusRun, start
from trnconv.corpus.videos.buckets import Buckets, Picture, buckets_for
from trnconv.corpus.videos.limits import Limits
from trnconv.corpus.videos.listing import list_clips

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
