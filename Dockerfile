# The three programs, statically linked, run by an unprivileged user:
#   docker build -t turnkeeper --build-arg VERSION=v0.1.0 --build-arg COMMIT="$(git rev-parse HEAD)" --build-arg DATE="$(date -u +%FT%TZ)" .
FROM golang:1.26-alpine AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
ARG COMMIT=unknown
ARG DATE=unknown
RUN mkdir /out && CGO_ENABLED=0 go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X 'turnkeeper/internal/version.stamp=$VERSION $COMMIT $DATE'" \
    -o /out/ ./cmd/worker ./cmd/enqueue ./cmd/turnctl

# Alpine has a shell for tools that are programs, wget for the health check, and certificates.
# For tools that need more, build another image: FROM turnkeeper, USER root, RUN apk add ..., USER 10001:10001.
FROM alpine:3.22
RUN addgroup -S -g 10001 turnkeeper && adduser -S -D -H -u 10001 -G turnkeeper turnkeeper \
    && install -d -o turnkeeper -g turnkeeper /srv/turnkeeper
COPY --from=build /out/ /usr/local/bin/
WORKDIR /srv/turnkeeper
USER 10001:10001
# Reachable from other hosts: every request needs a token, except /healthz and /readyz. Until the first is created
# (docker exec CONTAINER turnctl tokens create me --scopes send,read) all others are answered 401.
ENV TURNKEEPER_LISTEN=0.0.0.0:8722
EXPOSE 8722
# /healthz checks only the process; /readyz also checks the database, and would restart workers during its outages.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --start-interval=1s CMD ["wget", "-q", "-O", "/dev/null", "http://127.0.0.1:8722/healthz"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/worker"]
