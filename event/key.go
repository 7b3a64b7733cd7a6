package event

// Dim is one dimension of a key and its value, such as uid=42.
type Dim struct {
	Name  string // uid, api, all, attrs.NAME, ip, or a network: see AddressDim
	Value string // never empty
}

// AppendDim appends "name=value" to dst, each part percent-encoded (every byte that is not
// an unreserved character of RFC 3986, '/' in names excepted), behind a '&' unless dst is
// empty. Called for dimensions in the order of their names it builds a key's record-key text.
func AppendDim(dst []byte, name, value string) []byte {
	if len(dst) > 0 {
		dst = append(dst, '&')
	}
	dst = appendEscaped(dst, name, '/')
	dst = append(dst, '=')
	return appendEscaped(dst, value, 0)
}

func appendEscaped(dst []byte, s string, also byte) []byte {
	const hex = "0123456789ABCDEF"
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if unreserved[c] || (also != 0 && c == also) {
			continue
		}
		dst = append(dst, s[start:i]...)
		dst = append(dst, '%', hex[c>>4], hex[c&15])
		start = i + 1
	}
	return append(dst, s[start:]...)
}

var unreserved = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '-' || c == '.' || c == '_' || c == '~'
	}
	return t
}()

// Murmur2 is Kafka's default partitioner's hash (org.apache.kafka.common.utils.Utils.murmur2).
func Murmur2[T string | []byte](key T) uint32 {
	const m, seed = 0x5bd1e995, 0x9747b28c
	h := uint32(seed) ^ uint32(len(key))
	for len(key) >= 4 {
		k := uint32(key[0]) | uint32(key[1])<<8 | uint32(key[2])<<16 | uint32(key[3])<<24
		k *= m
		k ^= k >> 24
		k *= m
		h = h*m ^ k
		key = key[4:]
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}

// Partition returns the partition that Kafka's Java client chooses for a record of this key, of n.
func Partition(key []byte, n int32) int32 {
	return int32(Murmur2(key)&0x7fffffff) % n
}
