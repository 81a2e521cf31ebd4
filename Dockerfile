# docker build -t chunkmount .
# docker run --rm --device /dev/fuse --cap-add SYS_ADMIN -v /data:/data:ro -v /mnt:/mnt:rshared chunkmount -f /data/volume.zarr /mnt/volume
# The commands that do not mount (ls, info, cp, check) need no device and no capability.
FROM rust:1-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends build-essential && rm -rf /var/lib/apt/lists/*
WORKDIR /chunkmount
COPY . .
RUN cargo build --release --locked

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates fuse3 && rm -rf /var/lib/apt/lists/*
COPY --from=build /chunkmount/target/release/chunkmount /usr/bin/chunkmount
RUN ln -s ../bin/chunkmount /usr/sbin/mount.chunkmount
ENTRYPOINT ["chunkmount"]
