# The command alone: docker build -t onnxquant . && docker run --rm -v "$PWD:/work" onnxquant IN OUT
# With ONNX Runtime, for verify, bench and --calib: docker build --target ort -t onnxquant:ort .
FROM golang:1.26 AS build
WORKDIR /src
COPY . .
ARG VERSION
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o / ./cmd/onnxquant ./cmd/onnxquant-ort

FROM python:3.13-slim AS ort
COPY test/oracle/requirements.txt /tmp/
RUN pip install --no-cache-dir "$(grep ^onnxruntime== /tmp/requirements.txt)"
COPY --from=build /onnxquant /onnxquant-ort /usr/local/bin/
WORKDIR /work
ENTRYPOINT ["onnxquant"]

FROM scratch
COPY --from=build /onnxquant /onnxquant
# verify and some writers need a folder for temporary files.
WORKDIR /tmp
WORKDIR /work
ENTRYPOINT ["/onnxquant"]
