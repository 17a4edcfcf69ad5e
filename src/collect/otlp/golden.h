// One request, made by the protocol's own Python library: as protobuf (hex) and as that library's JSON (base64 ids,
// enum names). For tests.
#pragma once

namespace tailspan::collect::otlp {

inline constexpr char kGoldenHex[] =
    "0a8e030a2c0a160a0c736572766963652e6e616d6512060a0473686f700a120a0b70726f636573732e706964120318e72412"
    "dd020a050a036c696212d3020a100102030405060708090a0b0c0d0e0f101208111213141516171822082122232425262728"
    "2a0663686174206d30033901002a36fe9c9717410165f753fe9c97174a1f0a1567656e5f61692e6f7065726174696f6e2e6e"
    "616d6512060a04636861744a1f0a1967656e5f61692e75736167652e696e7075745f746f6b656e731202180c4a200a1a6765"
    "6e5f61692e75736167652e6f75747075745f746f6b656e73120218224a0a0a04666c6167120210014a180a0b74656d706572"
    "6174757265120921000000000000e03f4a1c0a046c69737412142a120a030a01610a0b18feffffffffffffffff014a190a03"
    "6d6170121232100a0e0a016b120921000000000000f83f4a0c0a04626c6f6212043a0200ff5a340901e11f3cfe9c97171209"
    "657863657074696f6e1a1e0a0e657863657074696f6e2e74797065120c0a0a56616c75654572726f727a081204626f6f6d18"
    "02";

inline constexpr char kGoldenJson[] =
    R"({"resourceSpans": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}, )"
    R"({"key": "process.pid", "value": {"intValue": "4711"}}]}, "scopeSpans": [{"scope": {"name": "lib"}, "spans": [)"
    R"({"traceId": "AQIDBAUGBwgJCgsMDQ4PEA==", "spanId": "ERITFBUWFxg=", "parentSpanId": "ISIjJCUmJyg=", )"
    R"("name": "chat m", "kind": "SPAN_KIND_CLIENT", "startTimeUnixNano": "1700000000000000001", )"
    R"("endTimeUnixNano": "1700000000500000001", "attributes": [)"
    R"({"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}, )"
    R"({"key": "gen_ai.usage.input_tokens", "value": {"intValue": "12"}}, )"
    R"({"key": "gen_ai.usage.output_tokens", "value": {"intValue": "34"}}, )"
    R"({"key": "flag", "value": {"boolValue": true}}, {"key": "temperature", "value": {"doubleValue": 0.5}}, )"
    R"({"key": "list", "value": {"arrayValue": {"values": [{"stringValue": "a"}, {"intValue": "-2"}]}}}, )"
    R"({"key": "map", "value": {"kvlistValue": {"values": [{"key": "k", "value": {"doubleValue": 1.5}}]}}}, )"
    R"({"key": "blob", "value": {"bytesValue": "AP8="}}], "events": [{"timeUnixNano": "1700000000100000001", )"
    R"("name": "exception", "attributes": [{"key": "exception.type", "value": {"stringValue": "ValueError"}}]}], )"
    R"("status": {"message": "boom", "code": "STATUS_CODE_ERROR"}}]}]}]})";

// ExportTraceServiceResponse with rejected_spans = 2, by the same library.
inline constexpr char kGoldenPartialHex[] =
    "0a270802122332207370616e732068616420696473206f66207468652077726f6e67206c656e677468";

}  // namespace tailspan::collect::otlp
