package protocol

// switches are rules of the protocol, each of which can be switched off.
type switches struct {
	run         bool // another process than the one that wrote the memory begins an epoch
	setBack     bool // after the clock was set back, nothing is granted by what was said before
	forgets     bool // nothing is forgotten that would count by a clock that is set back
	moves       bool // the clock moves on while TIME is behind it
	shardClock  bool // the clock never goes back
	keyClock    bool // a key's clock is not behind its level
	spent       bool // ids that ended are remembered, and asking for one is limited in time
	returnWaits bool // a lost permit is returned only when all before its hold has been counted
	merge       bool // coalesced levels settle the permits of all
	until       bool // permits are granted only until a moment that the owner wrote
	version     bool // an enforcer with older rules is told
	answer      bool // a late answer is none
	before      bool // a question that is asked again may not be answered for longer
	cancels     bool // who gave up cancels
	waits       bool // after a new epoch, nothing is granted until what the old one granted is counted
	holds       bool // until then only limits with so short a hold that theirs is
	shortened   bool // and whose hold was not longer lately
	forwards    bool // what other partitions forward is waited for
	settledAt   bool // a lost permit is counted by the owner, not forgotten
	order       bool // a batch is applied only behind what came before it
	first       bool // levels of limits that became strict come before the version
	formers     bool // a limit whose counters are called otherwise now is the same: so are its permits
	lostFormers bool // also for the owner that counts the lost ones
	gone        bool // a level by rules that are not in force says which limits it says nothing of
	gap         bool // who catches up over compacted records begins an epoch
}

// off switches parts of the simulation off, to show that it would notice. Nothing else sets it.
var off switches
