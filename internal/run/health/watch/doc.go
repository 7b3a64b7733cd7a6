// Package watch looks at an installation for the console: a poller asks Kafka, the aggregators, Redis and the enforcers
// once a second, each with a timeout of its own, whoever reads. Package health judges what it has learned.
package watch
