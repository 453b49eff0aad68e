# The relay's image: one static binary, the roots of the usual certificate authorities, an unprivileged user, no shell.
#
#   docker build --build-arg VERSION=v1.2.3 -t relay .
FROM golang:1.26.8-alpine AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/seed-1cfd9858/relay/internal/app.version=${VERSION}" -o /out/relay .

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/relay /relay
USER 65532:65532
ENTRYPOINT ["/relay"]
CMD ["run"]
