"""The image and the Compose file, built and run by Docker.

Real: Docker, Docker Compose, the Dockerfile, `docker-compose.kafka.yml` and the commands of the
pages, as they stand; Kafka's own code that reads the variables of its image; all servers.

Stand-ins, made from Debian's packages, because no registry of images is reached: the image of
Python, and those of Kafka, MySQL, Redis and Prometheus (`standins`), with their own scripts, paths
and users. Their versions are those of Debian, so these tests show that our files are right, not
that the images they name still are what they were.

Docker has a network, mounts and processes of its own, which end with it, however it ends.
"""
