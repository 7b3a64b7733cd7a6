// Package world knows how the chain from producers to enforcers is: a poller asks Kafka, the aggregators,
// Redis and the enforcers once a second, each with a timeout of its own, whoever reads. What it has learned
// becomes a chain of links with lights by a pure function, Judge.
package world
