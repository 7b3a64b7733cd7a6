package world

import (
	"fmt"
	"strings"
	"time"
)

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

// span is a length of time in words of two units at most.
func span(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", max(0, d.Seconds()*1000))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours())/24)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// partitions lists some.
func partitions(all []int32) string {
	if len(all) == 1 {
		return fmt.Sprintf("partition %d", all[0])
	}
	const most = 8
	var parts []string
	for i, p := range all {
		if i == most {
			parts = append(parts, fmt.Sprintf("%d more", len(all)-most))
			break
		}
		parts = append(parts, fmt.Sprint(p))
	}
	return "partitions " + strings.Join(parts, ", ")
}
