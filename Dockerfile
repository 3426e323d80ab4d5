# The command line tool by itself: a static program, the certificates that Linux distributions trust, and nothing else.
# It has no shell. To run other programs under locks, copy it beside them:
#
#	COPY --from=redislock /redislock /usr/local/bin/redislock

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
	CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags "-s -w" -o /redislock ./cmd/redislock

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /redislock /redislock
USER 65532:65532
ENTRYPOINT ["/redislock"]
