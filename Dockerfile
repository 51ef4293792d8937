# trnconv on the Neuron SDK. NOT RUN BY US: no device and no registry were at hand when it was written.
#
# The base is an image that AWS documents for SDK 2.32, "Install PyTorch via Deep Learning Container",
# awsdocs-neuron.readthedocs-hosted.com/en/latest/setup/pytorch/dlc.html; its recipe
# (aws-neuron/deep-learning-containers, vllm/inference/0.24.0.1.1.0) installs nki 0.6.0, which is the
# version these kernels are written for. Other images: github.com/aws-neuron/deep-learning-containers.
#
#   docker build -t trnconv .
#   docker run --rm -it --device=/dev/neuron0 trnconv trnconv --help
ARG BASE=public.ecr.aws/neuron/pytorch-inference-vllm-neuronx:0.24.0.1.1.0-neuronx-py313-sdk2.32.0-ubuntu24.04
FROM ${BASE}

WORKDIR /opt/trnconv
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
# torch is the image's: the extra `torch` would replace it.
RUN pip install --no-cache-dir . "diffusers>=0.33" "numpy>=1.26"

# The image starts a server; this one starts a shell, or the command it is given.
ENTRYPOINT []
CMD ["bash"]
