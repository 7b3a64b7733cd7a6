{{/* Options of programs, and the Secrets that they name. A Secret NAME is mounted as a folder below
/etc/tallygate/secrets: programs read its files again when it changes. */}}
{{- define "tallygate.kafka.args" -}}
{{- with .Values.kafka }}
- --kafka={{ required "kafka.brokers: give the bootstrap brokers, as HOST:PORT" .brokers | join "," }}
{{- if .tls.enabled }}
- --kafka-tls
{{- if .tls.caSecret }}
- --kafka-ca=/etc/tallygate/secrets/kafka-ca/ca.crt
{{- end }}
{{- if .tls.certSecret }}
- --kafka-cert=/etc/tallygate/secrets/kafka-cert/tls.crt
- --kafka-key=/etc/tallygate/secrets/kafka-cert/tls.key
{{- end }}
{{- end }}
{{- if .sasl.mechanism }}
- --kafka-sasl={{ .sasl.mechanism }}
- --kafka-user={{ required "kafka.sasl.user: SASL needs a user" .sasl.user }}
- --kafka-password-file=/etc/tallygate/secrets/kafka/{{ required "kafka.sasl.passwordSecret: SASL needs a Secret with the key password" .sasl.passwordSecret | empty | ternary "" "password" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tallygate.redis.args" -}}
{{- with .Values.redis }}
- --redis={{ required "redis.addresses: give Redis, as HOST:PORT" .addresses | join "," }}
{{- if .cluster }}
- --redis-cluster
{{- end }}
{{- if .master }}
- --redis-master={{ .master }}
{{- end }}
{{- if .db }}
- --redis-db={{ .db }}
{{- end }}
{{- if .user }}
- --redis-user={{ .user }}
{{- end }}
{{- if .passwordSecret }}
- --redis-password-file=/etc/tallygate/secrets/redis/password
{{- end }}
{{- if .tls.enabled }}
- --redis-tls
{{- if .tls.caSecret }}
- --redis-ca=/etc/tallygate/secrets/redis-ca/ca.crt
{{- end }}
{{- if .tls.certSecret }}
- --redis-cert=/etc/tallygate/secrets/redis-cert/tls.crt
- --redis-key=/etc/tallygate/secrets/redis-cert/tls.key
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tallygate.options" -}}
{{- range $name, $value := . }}
- {{ printf "--%s=%v" $name (kindIs "slice" $value | ternary (join "," $value) $value) | quote }}
{{- end }}
{{- end }}

{{/* Whether enforcers emit events to Kafka; the context is the root. */}}
{{- define "tallygate.enforcer.emits" -}}
{{- $e := .Values.enforcer }}{{ if or $e.emitAdmitted $e.emitDenied (hasKey $e.options "usage-domain") (hasKey $e.options "usage-descriptors") (hasKey $e.options "rlqs") }}true{{ end }}
{{- end }}

{{/* What a component mounts, as one YAML list of {name, secret}: (list . "console") */}}
{{- define "tallygate.secrets" -}}
{{- $v := (index . 0).Values }}{{ $c := index . 1 }}{{ $kafka := or (ne $c "enforcer") (include "tallygate.enforcer.emits" (index . 0)) -}}
{{- $all := list (dict "name" "redis" "secret" $v.redis.passwordSecret) -}}
{{- if $v.redis.tls.enabled }}{{ $all = concat $all (list (dict "name" "redis-ca" "secret" $v.redis.tls.caSecret) (dict "name" "redis-cert" "secret" $v.redis.tls.certSecret)) }}{{ end -}}
{{- if and $kafka $v.kafka.sasl.mechanism }}{{ $all = append $all (dict "name" "kafka" "secret" $v.kafka.sasl.passwordSecret) }}{{ end -}}
{{- if and $kafka $v.kafka.tls.enabled }}{{ $all = concat $all (list (dict "name" "kafka-ca" "secret" $v.kafka.tls.caSecret) (dict "name" "kafka-cert" "secret" $v.kafka.tls.certSecret)) }}{{ end -}}
{{- if has $c (list "aggregator" "enforcer") }}{{ $all = append $all (dict "name" "tokens" "secret" $v.auth.tokensSecret) }}{{ end -}}
{{- if has $c (list "console" "notify") }}{{ $all = concat $all (list (dict "name" "token" "secret" (index $v $c).tokenSecret) (dict "name" "aggregator-tls" "secret" $v.aggregator.tlsSecret "only" "ca.crt")) }}{{ end -}}
{{- if ne $c "notify" }}{{ $all = append $all (dict "name" "tls" "secret" (index $v $c).tlsSecret) }}{{ end -}}
{{- if eq $c "console" }}{{ $all = concat $all (list (dict "name" "session" "secret" $v.console.sessionKeySecret) (dict "name" "oidc" "secret" $v.console.clientSecret)) }}{{ end -}}
{{- if eq $c "notify" }}{{ $all = append $all (dict "name" "notify" "secret" $v.notify.secret) }}{{ end -}}
{{- range $all }}{{ if .secret }}
- {{ toJson . }}
{{- end }}{{ end }}
{{- end }}

{{- define "tallygate.mounts" -}}
{{- range include "tallygate.secrets" . | fromYamlArray }}
- {name: {{ .name }}, mountPath: /etc/tallygate/secrets/{{ .name }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "tallygate.volumes" -}}
{{- range include "tallygate.secrets" . | fromYamlArray }}
- name: {{ .name }}
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
{{- with get . "only" }}
    items: [{key: {{ . }}, path: {{ . }}}]
{{- end }}
{{- end }}
{{- end }}
