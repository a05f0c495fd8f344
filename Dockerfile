# The command alone: docker build -t onnxquant . && docker run --rm -v "$PWD:/work" onnxquant IN OUT
FROM golang:1.26 AS build
WORKDIR /src
COPY . .
ARG VERSION
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /onnxquant ./cmd/onnxquant

FROM scratch
COPY --from=build /onnxquant /onnxquant
# verify and some writers need a folder for temporary files.
WORKDIR /tmp
WORKDIR /work
ENTRYPOINT ["/onnxquant"]
